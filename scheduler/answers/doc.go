// Package answers holds what executors say against what they were asked, and against
// limits, before anything of it is used or kept. An executor may be broken or
// hostile: it can lose the jobs that it works for, and nothing else.
//
// File manifests are held against the facts by package commit (Verify); what comes
// before that is here: registrations, heartbeats, statuses, probes, and how much of
// a manifest is taken, and for how long.
package answers
