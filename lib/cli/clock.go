package cli

import "time"

// Clock formats a time as local time of day, with the date if it is not today.
func Clock(value string) string {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return value
	}
	t = t.Local()
	if y, m, d := t.Date(); time.Date(y, m, d, 0, 0, 0, 0, t.Location()).Equal(today()) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// today returns the start of the current day.
func today() time.Time {
	y, m, d := time.Now().Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.Local)
}
