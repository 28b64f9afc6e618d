package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftime writes t as Python's datetime.strftime does in the C locale on Linux. An unknown directive stays as it is.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // glibc: no padding
		if plain {
			i++
		}
		s, ok := directive(t, format[i])
		switch {
		case !ok && plain:
			b.WriteString(format[i-2 : i+1])
		case !ok:
			b.WriteString(format[i-1 : i+1])
		case plain:
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
			b.WriteString(s)
		default:
			b.WriteString(s)
		}
	}
	return b.String()
}

var layouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'h': "Jan", 'd': "02", 'e': "_2", 'm': "01", 'y': "06",
	'Y': "2006", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'F': "2006-01-02", 'T': "15:04:05",
	'D': "01/02/06", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'r': "03:04:05 PM",
}

func directive(t time.Time, d byte) (string, bool) {
	if layout, ok := layouts[d]; ok {
		return t.Format(layout), true
	}
	switch d {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'Z', 'z':
		return "", true // datetime.now() has no zone
	case 'w':
		return fmt.Sprint(int(t.Weekday())), true
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1), true
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100), true
	case 's':
		return fmt.Sprint(t.Unix()), true
	}
	return "", false
}
