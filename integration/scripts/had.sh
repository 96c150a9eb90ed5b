# had NAME COMMAND…: runs a command that gets something from outside. What can't
# be had is printed and fails, unless integration/not-had.txt gives the reason.
had() {
  local name=$1 log
  shift
  log=$(mktemp)
  if "$@" >"$log" 2>&1; then rm -f "$log"; return 0; fi
  echo "NOT HAD: $name, $*, $(tail -n 1 "$log")"
  rm -f "$log"
  grep -q "^$name:" integration/not-had.txt && return 0
  return 1
}
