package failpoint

// Point is a moment in a process's work.
type Point string

// Points of a scheduler: its journal's writes, its requests, and what it deletes.
const (
	BeforeStart    Point = "scheduler/before-start"    // an attempt isn't on record
	AfterStart     Point = "scheduler/after-start"     // it is, and isn't handed out
	BeforeAccept   Point = "scheduler/before-accept"   // a success isn't on record
	AfterAccept    Point = "scheduler/after-accept"    // it is, and isn't acknowledged
	BeforeManifest Point = "scheduler/before-manifest" // a unit's manifest isn't stored
	BeforeSeal     Point = "scheduler/before-seal"     // a large manifest is, its unit isn't sealed
	AfterSeal      Point = "scheduler/after-seal"
	BeforeRecord   Point = "scheduler/before-record" // a send isn't on record
	AfterRecord    Point = "scheduler/after-record"
	BeforeSend     Point = "scheduler/before-send"    // a request wasn't sent
	AfterSend      Point = "scheduler/after-send"     // it was answered, and nobody has looked
	BeforeOutcome  Point = "scheduler/before-outcome" // what became of a unit isn't on record
	AfterOutcome   Point = "scheduler/after-outcome"
	BeforeEnd      Point = "scheduler/before-end" // a job's result isn't stored
	AfterEnd       Point = "scheduler/after-end"
	BeforeFree     Point = "scheduler/before-free" // shuffle data of an ended job is there
	AfterFree      Point = "scheduler/after-free"
	BeforeDeleting Point = "scheduler/before-deleting" // files that go aren't on record
	AfterDeleting  Point = "scheduler/after-deleting"
	AfterDelete    Point = "scheduler/after-delete" // one of them is gone

	BeforeHandIn    Point = "scheduler/before-hand-in" // the manifest of an external write isn't on record
	AfterHandIn     Point = "scheduler/after-hand-in"
	BeforeWriteSeal Point = "scheduler/before-write-seal" // an external write isn't sealed
	AfterWriteSeal  Point = "scheduler/after-write-seal"  // it is, and nothing was done about it
)

// Points of an executor.
const (
	BeforeClose  Point = "executor/before-close"  // data files aren't finished
	AfterClose   Point = "executor/after-close"   // they are, without a manifest
	AfterWritten Point = "executor/after-written" // the manifest is there
	BeforeReport Point = "executor/before-report" // a status wasn't told
	AfterReport  Point = "executor/after-report"  // it was acknowledged
)

// Scheduler and Executor are the points of each, in the order in which a job comes
// by them.
var (
	Scheduler = []Point{
		BeforeStart, AfterStart, BeforeAccept, AfterAccept, BeforeManifest, BeforeSeal, AfterSeal, BeforeRecord, AfterRecord,
		BeforeSend, AfterSend, BeforeOutcome, AfterOutcome, BeforeEnd, AfterEnd, BeforeFree, AfterFree,
		BeforeDeleting, AfterDeleting, AfterDelete,
	}
	// Writes are those that a scheduler gets to only with an external write.
	Writes   = []Point{BeforeHandIn, AfterHandIn, BeforeWriteSeal, AfterWriteSeal}
	Executor = []Point{BeforeClose, AfterClose, AfterWritten, BeforeReport, AfterReport}
)
