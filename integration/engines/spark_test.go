//go:build interop

package engines_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sparkTimeout is how long a process of Spark's may take to start; several JVMs on a
// busy machine take their time.
const sparkTimeout = 2 * time.Minute

// straggler is the task of flights.py that straggles.
const straggler = 11

// startSpark starts a cluster of Spark's: a master, and two workers on addresses of
// the loopback interface that differ, since Spark runs no second attempt of a task on
// the host of the first. Its processes have the text in their environment. It gives
// the master's URL.
func startSpark(t *testing.T, text string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python(t), "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))").Output()
	if err != nil {
		t.Fatal(err)
	}
	home, dir := strings.TrimSpace(string(out)), t.TempDir()
	run := func(host, line string, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(home, "bin", "spark-class"), append(args[:1:1], append([]string{"--host", host, "--port", "0", "--webui-port", "0"}, args[1:]...)...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "FIRN_TEST_MARK="+text, "SPARK_HOME="+home, "SPARK_LOCAL_IP="+host, "AWS_EC2_METADATA_DISABLED=true", "SPARK_DAEMON_MEMORY=256m",
			"SPARK_DAEMON_JAVA_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false -Dspark.log.level=INFO")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		log, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		found, ended := make(chan string, 1), make(chan struct{})
		go func() {
			defer close(ended)
			pattern, lines := regexp.MustCompile(line), bufio.NewScanner(log)
			var said strings.Builder
			for lines.Scan() {
				fmt.Fprintln(&said, lines.Text())
				if m := pattern.FindStringSubmatch(lines.Text()); m != nil {
					found <- m[1]
					break
				}
			}
			_, _ = io.Copy(io.Discard, log)
			_ = cmd.Wait()
			if len(found) == 0 {
				found <- "!" + said.String()
			}
		}()
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
			<-ended
		})
		select {
		case m := <-found:
			if strings.HasPrefix(m, "!") {
				t.Fatalf("%s: %s", args[0], m)
			}
			return m
		case <-time.After(sparkTimeout):
			t.Fatalf("%s isn't up after %v", args[0], sparkTimeout)
		}
		return ""
	}
	url := run("127.0.0.1", `Starting Spark master at (spark://\S+)`, "org.apache.spark.deploy.master.Master")
	for _, host := range []string{"127.0.0.2", "127.0.0.3"} {
		run(host, `(Successfully registered) with master`, "org.apache.spark.deploy.worker.Worker", "--cores", "2", "--memory", "1500m", "--work-dir", filepath.Join(dir, host), url)
	}
	return url
}

// speculated reads Spark's event log in a run's directory: whether it tells of a second
// attempt of the straggling task. That must be one which Spark ran beside the first,
// not after its end.
func speculated(t *testing.T, state string, first, second int) bool {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(state, "events", "app-*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("event logs of Spark's: %v, %v", logs, err)
	}
	raw, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var event struct {
			Event string
			Info  struct {
				Index, Attempt int
				Speculative    bool
			} `json:"Task Info"`
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it's still being written
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch of := event.Info; {
		case of.Index != straggler:
		case event.Event == "SparkListenerTaskEnd" && of.Attempt == first:
			t.Errorf("the straggler, attempt %d, ended before attempt %d began", first, second)
			return true
		case event.Event == "SparkListenerTaskStart" && of.Attempt == second:
			if !of.Speculative {
				t.Errorf("attempt %d of the straggling task wasn't speculative", second)
			}
			return true
		}
	}
	return false
}
