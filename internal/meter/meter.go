package meter

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Info is what is known of a metric before it has a value.
type Info struct {
	Name, Type string
	Labels     []string
	Help       string
}

// Seconds are the bounds of durations: from a small statement to a long job.
var Seconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}

// scrapeTime bounds how long a scrape waits for what is now.
const scrapeTime = 5 * time.Second

// Set is the metrics of one process, with Go's and the process's own.
type Set struct {
	registry *prometheus.Registry
	infos    []Info
	log      *slog.Logger
	gauges   map[string]*prometheus.Desc
	now      func(context.Context, Gauge) error
}

// Gauge tells the value of a gauge at a scrape.
type Gauge func(name string, v float64, labels ...string)

// New makes an empty set. What can't be read at a scrape is logged.
func New(log *slog.Logger) *Set {
	s := &Set{registry: prometheus.NewRegistry(), log: log, gauges: map[string]*prometheus.Desc{}}
	s.buildInfo()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

func (s *Set) note(name, kind, help string, labels []string) {
	s.infos = append(s.infos, Info{Name: name, Type: kind, Labels: labels, Help: help})
}

// Counter adds a counter.
func (s *Set) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.registry.MustRegister(c)
	s.note(name, "counter", help, labels)
	return c
}

// Histogram adds a histogram.
func (s *Set) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	s.registry.MustRegister(h)
	s.note(name, "histogram", help, labels)
	return h
}

// Gauge adds a gauge whose values are asked for at each scrape; see Gauges.
func (s *Set) Gauge(name, help string, labels ...string) {
	s.gauges[name] = prometheus.NewDesc(name, help, labels, nil)
	s.note(name, "gauge", help, labels)
}

// Gauges is called when all gauges were added.
func (s *Set) Gauges() { s.registry.MustRegister(collector{s}) }

// Watch says where a scrape finds what is now. It is set once, before the first
// scrape.
func (s *Set) Watch(now func(context.Context, Gauge) error) { s.now = now }

// Handler answers scrapes.
func (s *Set) Handler() http.Handler { return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}) }

// Gatherer is what a scrape gives, for tests.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }

// Infos lists the set's own metrics, in the order in which they were added.
func (s *Set) Infos() []Info { return slices.Clone(s.infos) }

func (s *Set) buildInfo() {
	const name, help = "firn_build_info", "The build that runs; always 1."
	labels := prometheus.Labels{"version": "", "revision": "", "goversion": ""}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["version"], labels["goversion"] = info.Main.Version, info.GoVersion
		for _, set := range info.Settings {
			if set.Key == "vcs.revision" {
				labels["revision"] = set.Value
			}
		}
	}
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	g.Set(1)
	s.registry.MustRegister(g)
	s.note(name, "gauge", help, []string{"version", "revision", "goversion"})
}

// collector asks for the gauges at each scrape.
type collector struct{ s *Set }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.s.gauges {
		ch <- d
	}
}

// Collect implements prometheus.Collector. What can't be had is left out, as a whole:
// half of what is now would look like all of it.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	if c.s.now == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	var all []prometheus.Metric
	err := c.s.now(ctx, func(name string, v float64, labels ...string) {
		all = append(all, prometheus.MustNewConstMetric(c.s.gauges[name], prometheus.GaugeValue, v, labels...))
	})
	if err != nil {
		c.s.log.LogAttrs(ctx, slog.LevelWarn, "metrics are incomplete", slog.Any("error", err))
		return
	}
	for _, m := range all {
		ch <- m
	}
}
