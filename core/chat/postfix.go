package chat

import "strings"

// postfix reads attributes, items, slices and calls behind a value.
func (x *expression) postfix(out string) string {
	for n := 0; x.err == nil; n++ {
		if n > maxBrackets {
			x.fail("more than %d attributes, items and calls follow each other", maxBrackets)
		}
		switch {
		case x.take("."):
			out = x.attribute(out)
		case x.take("["):
			out = x.subscript(out)
		case x.take("("):
			out += "(" + x.arguments()
		default:
			return out
		}
	}
	return out
}

func (x *expression) attribute(of string) string {
	t := x.peek()
	x.i++
	switch t.kind {
	case numberToken:
		return itemName + "(" + of + ", " + t.text + ")"
	case wordToken:
		if x.take("(") {
			args := x.arguments()
			if args != ")" {
				args = ", " + args
			}
			return methodName + "(" + of + `, "` + t.text + `"` + args
		}
		return attrName + "(" + of + `, "` + t.text + `")`
	}
	x.i--
	x.unexpected("want the name of an attribute")
	return ""
}

// subscript reads an item or a slice.
func (x *expression) subscript(of string) string {
	var parts []string
	part := "none"
	slice := false
	for x.err == nil {
		switch {
		case x.take("]"):
			parts = append(parts, part)
			if !slice {
				if part == "none" && x.tokens[x.i-2].text == "[" {
					x.fail("a subscript is empty")
				}
				return itemName + "(" + of + ", " + part + ")"
			}
			if len(parts) > 3 {
				x.fail("a slice has more than three parts")
			}
			return sliceName + "(" + of + ", " + strings.Join(parts, ", ") + ")"
		case x.take(":"):
			slice = true
			parts = append(parts, part)
			part = "none"
		default:
			part = x.choice()
			if t := x.peek().text; t != "]" && t != ":" {
				x.unexpected("want the end of a subscript")
			}
		}
	}
	return ""
}

// filters reads filters and tests behind a value.
func (x *expression) filters(out string) string {
	for n := 0; x.err == nil; n++ {
		if n > maxBrackets {
			x.fail("more than %d filters follow each other", maxBrackets)
		}
		switch {
		case x.take("|"):
			out = x.filter(out)
		case x.take("is"):
			out = x.test(out)
		default:
			return out
		}
	}
	return out
}

func (x *expression) filter(of string) string {
	t := x.peek()
	if t.kind != wordToken {
		x.unexpected("want the name of a filter")
		return ""
	}
	x.i++
	args := ")"
	if x.take("(") {
		args = x.arguments()
	}
	if args != ")" {
		args = ", " + args
	}
	return filterName + `("` + t.text + `", ` + of + args
}

func (x *expression) test(of string) string {
	not := x.take("not")
	t := x.peek()
	if t.kind != wordToken {
		x.unexpected("want the name of a test")
		return ""
	}
	x.i++
	args := ""
	next := x.peek()
	switch {
	case x.take("("):
		if args = x.arguments(); args != ")" {
			args = ", " + args
		}
		args = strings.TrimSuffix(args, ")")
	case next.kind == textToken, next.kind == numberToken, next.text == "[", next.text == "{",
		next.kind == wordToken && !reserved[next.text]:
		args = ", " + x.postfix(x.primary())
	}
	out := testName + `("` + t.text + `", ` + of + args + ")"
	if not {
		return "(not " + out + ")"
	}
	return out
}
