package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Now is how a scheduler is at one moment.
type Now struct {
	// TasksPending wait for a slot.
	TasksPending int
	// Executors counts them by state.
	Executors map[string]int
	// QueueLength is how many sealed commits aren't through, Unknown how many have
	// an outcome that isn't known.
	QueueLength, Unknown int
}

// scrapeTime bounds how long a scrape waits for what is now.
const scrapeTime = 5 * time.Second

// gauges asks at each scrape.
type gauges struct {
	log *slog.Logger
	now func(context.Context) (Now, error)
}

var (
	pendingDesc   = prometheus.NewDesc("firn_tasks_pending", "Tasks that wait for a slot.", nil, nil)
	executorsDesc = prometheus.NewDesc("firn_executors", "Executors that are known.", []string{"state"}, nil)
	queueDesc     = prometheus.NewDesc("firn_commit_queue_length", "Sealed commits that aren't through.", nil, nil)
	unknownDesc   = prometheus.NewDesc("firn_commit_state_unknown", "Commits whose outcome isn't known yet; nobody may resubmit them under another key.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pendingDesc, executorsDesc, queueDesc, unknownDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. What can't be had is left out.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	if g.now == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	now, err := g.now(ctx)
	if err != nil {
		g.log.LogAttrs(ctx, slog.LevelWarn, "metrics are incomplete", slog.Any("error", err))
		return
	}
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	gauge(pendingDesc, now.TasksPending)
	gauge(queueDesc, now.QueueLength)
	gauge(unknownDesc, now.Unknown)
	for _, state := range []string{"ready", "draining", "drained", "returning"} {
		gauge(executorsDesc, now.Executors[state], state)
	}
}
