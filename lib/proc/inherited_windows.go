package proc

// Inherited is empty: only what is named is inherited on Windows.
type Inherited struct{}

// HideInherited does nothing.
func HideInherited() (i Inherited) { return i }

// Show does nothing.
func (Inherited) Show() {}
