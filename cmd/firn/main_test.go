package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain also lets the test binary be the command firn, for the scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"firn": main})
}

// TestScripts runs the command as users do: each script is a transcript with
// output and exit codes. Beside testscript's own commands there are
//
//	exits CODE PROGRAM ARGS…   runs a program that must end with the exit code
//	start NAME PROGRAM ARGS…   starts a service; its address becomes $NAME
//	start_sql NAME PROGRAM …   starts a statement in an embedded cluster
//	stop_service NAME CODE     sends SIGTERM to it and wants the exit code
//	json FIELD…=VALUE          compares fields of stdout's last line
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Vars = slices.DeleteFunc(e.Vars, func(v string) bool { return strings.HasPrefix(v, "FIRN_") })
			e.Vars = append(e.Vars, "FLIGHTS="+flights(t))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "flights" {
				return flights(t) != "", nil
			}
			return false, errors.New("unknown condition " + cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "start": start, "start_sql": startSQL, "stop_service": stopService, "json": jsonFields,
		},
	})
}

// flights is the big input, where there is one.
func flights(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FIRN_TESTDATA")
	path := filepath.Join(dir, "data", "flights-3m.parquet")
	if _, err := os.Stat(path); dir == "" || err != nil {
		return ""
	}
	return path
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS…")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// service is a process in the background.
type service struct {
	cmd  *exec.Cmd
	once sync.Once
}

// wait waits for the process's end and gives its exit code.
func (s *service) wait() int {
	s.once.Do(func() { _ = s.cmd.Wait() }) // the code says it
	return s.cmd.ProcessState.ExitCode()
}

// background starts a program whose stderr goes to NAME.log.
func background(ts *testscript.TestScript, neg bool, args []string) *bufio.Reader {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME PROGRAM ARGS…")
	}
	program := args[1]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, program); isFile(p) {
			program = p
			break
		}
	}
	cmd := exec.Command(program, args[2:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), append(os.Environ(), "PATH="+ts.Getenv("PATH"))
	log, err := os.Create(ts.MkAbs(args[0] + ".log"))
	ts.Check(err)
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	s := &service{cmd: cmd}
	ts.Check(log.Close()) // the process has its own
	services.Store(ts.Getenv("WORK")+args[0], s)
	ts.Defer(func() {
		_ = cmd.Process.Kill() // it may have ended
		s.wait()
	})
	return bufio.NewReader(stdout)
}

func start(ts *testscript.TestScript, neg bool, args []string) {
	stdout := background(ts, neg, args)
	line, err := stdout.ReadString('\n')
	var ready struct{ Address, ID string }
	if err != nil || json.Unmarshal([]byte(line), &ready) != nil || ready.Address == "" {
		ts.Fatalf("%s isn't ready: %q, %v\n%s", args[0], line, err, ts.ReadFile(args[0]+".log"))
	}
	ts.Setenv(args[0], ready.Address)
	ts.Setenv(args[0]+"_ID", ready.ID)
}

// startSQL waits until the embedded cluster is up and the statement is sent.
func startSQL(ts *testscript.TestScript, neg bool, args []string) {
	background(ts, neg, args)
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(ts.ReadFile(args[0]+".log"), "credential boundary") {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s doesn't run\n%s", args[0], ts.ReadFile(args[0]+".log"))
		}
	}
}

// services are those of all scripts, by script and name.
var services sync.Map

func stopService(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stop_service NAME CODE")
	}
	found, ok := services.Load(ts.Getenv("WORK") + args[0])
	if !ok {
		ts.Fatalf("no service %s", args[0])
	}
	s := found.(*service)
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	kill := time.AfterFunc(30*time.Second, func() { _ = s.cmd.Process.Kill() }) // the exit code shows it
	defer kill.Stop()
	if code := s.wait(); strconv.Itoa(code) != args[1] {
		ts.Fatalf("exit code %d, want %s\n%s", code, args[1], ts.ReadFile(args[0]+".log"))
	}
}

// jsonFields compares fields of the last line of stdout with JSON values; a value
// of * only wants the field to be there.
func jsonFields(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &object); err != nil {
		ts.Fatalf("%v in %s", err, lines[len(lines)-1])
	}
	for _, arg := range args {
		name, want, _ := strings.Cut(arg, "=")
		got, ok := object[name]
		if match := ok && (want == "*" || string(got) == want); match == neg {
			ts.Fatalf("field %s is %s, want %s (negated: %t)", name, got, want, neg)
		}
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
