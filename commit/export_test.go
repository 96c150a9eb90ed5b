package commit

// ablations break the machine, by name.
var ablations = map[string]func(*ablation){
	"tokens are looked for in the head's history only": func(a *ablation) { a.headOnly = true },
	"own snapshot ids aren't looked for":               func(a *ablation) { a.noSnapshotIDs = true },
	"the ledger isn't looked into":                     func(a *ablation) { a.noLedger = true },
	"every read is taken to show everything":           func(a *ablation) { a.noOrigin = true },
	"no send record":                                   func(a *ablation) { a.noRecord = true },
	"a cancel wins after the point of no return":       func(a *ablation) { a.lateCancel = true },
	"a moved head is taken for a taken seat":           func(a *ablation) { a.movedIsDead = true },
	"refused while requests are alive":                 func(a *ablation) { a.notDead = true },
	"a 4xx speaks for all copies":                      func(a *ablation) { a.anyAnswer = true },
	"a 409 speaks for its copy":                        func(a *ablation) { a.conflictSpeaks = true },
	"a batch's refusal is everybody's":                 func(a *ablation) { a.noSplit = true },
	"a token twice in a request":                       func(a *ablation) { a.twins = true },
	"a fence that was sent has landed":                 func(a *ablation) { a.fenceSpeaks = true },
	"seats that can be taken back count as taken":      func(a *ablation) { a.shakySeats = true },
	"overwrites without a seat":                        func(a *ablation) { a.noSeatNeeded = true },
}

// Ablations are the names of all.
func Ablations() (names []string) {
	for n := range ablations {
		names = append(names, n)
	}
	return names
}

// NewAblated is NewMachine with one part of the protocol broken, by name.
func NewAblated(name string) func([]Unit, Options) *Machine {
	f := ablations[name]
	return func(units []Unit, o Options) *Machine {
		f(&o.ablate)
		return NewMachine(units, o)
	}
}
