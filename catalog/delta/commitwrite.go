package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// Commit is what one version is to hold.
type Commit struct {
	// Info comes first in the file. Its TxnID names the request.
	Info     CommitInfo
	Protocol *delta.Protocol
	Metadata *Metadata
	Txns     []Txn
	Domains  []DomainMetadata
	Removes  []*Remove
	Adds     []*Add
}

// maxCommitBytes is the largest commit. A single request to S3 takes 5 GB; other
// engines read whole commits into memory.
const maxCommitBytes = 2 << 30

// Encode is the content of the version's file. It refuses what no commit may hold:
// two actions that replace each other, files that differ in dataChange.
func (c *Commit) Encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	var b bytes.Buffer
	put := func(a Action) error {
		if b.Len() > maxCommitBytes {
			return fmt.Errorf("commit: more than %d bytes", maxCommitBytes)
		}
		return appendAction(&b, &a)
	}
	actions := []Action{{CommitInfo: &c.Info}}
	if c.Protocol != nil {
		actions = append(actions, Action{Protocol: c.Protocol})
	}
	if c.Metadata != nil {
		actions = append(actions, Action{Metadata: c.Metadata})
	}
	for i := range c.Txns {
		actions = append(actions, Action{Txn: &c.Txns[i]})
	}
	for i := range c.Domains {
		actions = append(actions, Action{DomainMetadata: &c.Domains[i]})
	}
	for _, a := range actions {
		if err := put(a); err != nil {
			return nil, err
		}
	}
	for _, r := range c.Removes {
		if err := put(Action{Remove: r}); err != nil {
			return nil, err
		}
	}
	for _, a := range c.Adds {
		if err := put(Action{Add: a}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func (c *Commit) check() error {
	if c.Info.TxnID == "" || c.Info.Operation == "" {
		return errors.New("commitInfo lacks txnId or operation")
	}
	apps, domains := map[string]bool{}, map[string]bool{}
	for _, t := range c.Txns {
		if apps[t.AppID] {
			return fmt.Errorf("two txn of %.200q", t.AppID)
		}
		apps[t.AppID] = true
	}
	for _, d := range c.Domains {
		if domains[d.Domain] {
			return fmt.Errorf("two domainMetadata of %.200q", d.Domain)
		}
		domains[d.Domain] = true
	}
	keys, added, removed := map[fileKey]bool{}, map[string]bool{}, map[string]bool{}
	change := map[bool]bool{}
	one := func(k fileKey, paths map[string]bool, dataChange bool) error {
		if keys[k] || paths[k.path] {
			return fmt.Errorf("two actions of the file %.300q", k.path)
		}
		keys[k], paths[k.path], change[dataChange] = true, true, true
		return nil
	}
	for _, r := range c.Removes {
		if err := one(r.key(), removed, r.DataChange); err != nil {
			return err
		}
	}
	for _, a := range c.Adds {
		if err := one(a.key(), added, a.DataChange); err != nil {
			return err
		}
	}
	if len(change) > 1 {
		return errors.New("files that change data beside files that don't")
	}
	return nil
}

// Put writes a version, once. The error wraps objstore.ErrExists when the version
// is taken; by any other error the version may be taken or not, by this very
// write too, and only Settle finds out.
func (l *Log) Put(ctx context.Context, version int64, data []byte) error {
	uri := l.uri(commitName(version))
	if err := l.store.PutIfAbsent(ctx, uri, data); err != nil {
		return newError(commit.CodeStorage, "write commit", uri, err)
	}
	return nil
}

// Settled is what a version turned out to be.
type Settled int

// What a version turns out to be.
const (
	// Absent: nobody has taken the version. A write that is still under way may.
	Absent Settled = iota
	// Ours: the version is the commit asked for.
	Ours
	// Theirs: the version is another commit, so that ours can't land there any
	// more.
	Theirs
)

// Settle reads a version back and compares its txnId. It is the answer to a lost
// reply, and to "exists already": a transport may have sent our own write twice.
func (l *Log) Settle(ctx context.Context, version int64, txnID string) (Settled, error) {
	found := ""
	_, err := l.readCommit(ctx, version, false, func(a Action) error {
		if a.CommitInfo != nil {
			found = a.CommitInfo.TxnID
			return errStop
		}
		return nil
	})
	switch {
	case isNotFound(err):
		return Absent, nil
	case err != nil && !errors.Is(err, errStop):
		return Absent, newError(commit.CodeStorage, "read back commit", l.uri(commitName(version)), err)
	case found == txnID && txnID != "":
		return Ours, nil
	}
	return Theirs, nil
}

// Times are the times that the next version has: the clock's, and, if the table
// keeps them, the one in the commit, which grows with each version even if clocks
// don't.
func (s *Snapshot) Times(ctx context.Context, now time.Time) (timestamp int64, inCommit *int64, err error) {
	timestamp = now.UnixMilli()
	on, err := keepsTimes(s.definition)
	if err != nil || !on {
		return timestamp, nil, err
	}
	last, err := s.lastInfo(ctx)
	if err != nil {
		return timestamp, nil, err
	}
	before := last.Timestamp // of the version that switched it on, or an older one
	if last.InCommitTimestamp != nil {
		before = *last.InCommitTimestamp
	}
	t := max(timestamp, before+1)
	return timestamp, &t, nil
}

func keepsTimes(d delta.Definition) (bool, error) {
	return delta.Bool(d.Properties, delta.PropertyInCommitTimestamps, false)
}

// lastInfo is the commitInfo of the snapshot's own version. A checkpoint doesn't
// have it.
func (s *Snapshot) lastInfo(ctx context.Context) (CommitInfo, error) {
	if n := len(s.commits); n > 0 && s.commits[n-1].Version == s.Version() {
		return s.commits[n-1].Info, nil
	}
	var info CommitInfo
	_, err := s.log.readCommit(ctx, s.Version(), false, func(a Action) error {
		if a.CommitInfo != nil {
			info = *a.CommitInfo
		}
		return nil
	})
	uri := s.log.uri(commitName(s.Version()))
	if isNotFound(err) {
		return info, damaged(uri, errors.New("the commit is gone, and without its time the next one has none"))
	}
	if err != nil {
		return info, newError(commit.CodeStorage, "read commit", uri, err)
	}
	return info, nil
}

// replaceHint writes _last_checkpoint, unless it names this version or a newer one
// already. It is removed and written anew, each in one step: a reader that comes
// in between lists the log.
func (l *Log) replaceHint(ctx context.Context, h lastCheckpoint, data []byte) error {
	old, ok, err := l.readHint(ctx)
	if err != nil {
		return err
	}
	if ok && old.Version >= h.Version {
		return nil
	}
	if err := l.store.Delete(ctx, l.uri(hintName)); err != nil {
		return err
	}
	if err := objstore.WriteFile(ctx, l.store, l.uri(hintName), data); err != nil && !errors.Is(err, objstore.ErrExists) {
		return err
	}
	return nil
}
