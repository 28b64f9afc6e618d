package chat

import (
	"errors"
	"fmt"
	"strings"
)

// statement rewrites one {% %} tag. What the library's own reading of tags loses is written in terms of what it knows:
// filters of set and filter blocks, several targets of set, defaults of macros that hold a comma.
type statement struct {
	w *rewriter
	x expression
}

func (w *rewriter) statement(tokens []token, line int) error {
	if len(tokens) == 0 || tokens[0].kind != wordToken {
		return errors.New("a tag has no name")
	}
	s := statement{w, expression{tokens: tokens, i: 1, line: line}}
	switch name := tokens[0].text; name {
	case "if", "elif":
		w.tagged(name + " " + s.x.value())
	case "for":
		s.loop()
	case "set":
		s.set()
	case "macro":
		s.macro()
	case "call":
		s.call()
	case "filter":
		s.filter()
	case "endset", "endfilter":
		return s.endBlock(name)
	default:
		w.tagged(name)
	}
	return s.x.end()
}

func (w *rewriter) tagged(s string) { w.out.WriteString("{% " + s + " %}") }

// tick makes a body count.
func (w *rewriter) tick() { w.tagged("set " + tickVar + " = " + tickName + "()") }

func (s *statement) name() string {
	t := s.x.peek()
	if t.kind != wordToken {
		s.x.unexpected("want a name")
	}
	return t.text
}

// targets reads one name or several, with brackets or without.
func (s *statement) targets() []string {
	bracket := s.x.take("(")
	var out []string
	for s.x.err == nil {
		t := s.x.peek()
		if t.kind != wordToken || reserved[t.text] {
			if len(out) == 0 {
				s.x.unexpected("want a name")
			}
			break
		}
		s.x.i++
		target := t.text
		if s.x.take(".") {
			target += "." + s.x.peek().text
			s.x.i++
		}
		out = append(out, target)
		if !s.x.take(",") {
			break
		}
	}
	if bracket {
		s.x.expect(")")
	}
	return out
}

func (s *statement) loop() {
	targets := s.targets()
	s.x.expect("in")
	iter := s.x.or()
	if s.x.peek().text == "," {
		items := []string{iter}
		for s.x.take(",") && s.x.peek().kind != 0 {
			items = append(items, s.x.or())
		}
		iter = "[" + strings.Join(items, ", ") + "]"
	}
	source := fmt.Sprintf("%s(%s, %d)", iterName, iter, len(targets))
	conditioned := s.x.take("if")
	unpack := len(targets) > 2 || conditioned && len(targets) > 1 // the library knows two targets, and none of them in a condition
	head := "for " + strings.Join(targets, ", ") + " in " + source
	if unpack {
		head = "for " + unpackVar + " in " + source
		s.x.names = map[string]string{}
		for i, name := range targets {
			s.x.names[name] = fmt.Sprintf("%s(%s, %d)", itemName, unpackVar, i)
		}
	}
	if conditioned {
		head += " if (" + s.x.or() + ")"
	}
	if s.x.peek().text == "recursive" {
		s.x.fail("a recursive loop is not understood")
	}
	s.w.tagged(head)
	if unpack {
		for _, name := range targets {
			s.w.tagged("set " + name + " = " + s.x.names[name])
		}
	}
	s.w.tick()
}

func (s *statement) set() {
	targets := s.targets()
	switch {
	case s.x.take("="):
		value := s.x.value()
		if len(targets) == 1 {
			s.w.tagged("set " + targets[0] + " = " + value)
			return
		}
		s.w.tagged(fmt.Sprintf("set %s = %s([%s], %d)", unpackVar, iterName, value, len(targets)))
		for i, name := range targets {
			s.w.tagged(fmt.Sprintf("set %s = %s(%s(%s, 0), %d)", name, itemName, itemName, unpackVar, i))
		}
	case len(targets) == 1:
		s.open("set", targets[0])
	default:
		s.x.unexpected("want =")
	}
}

// open begins a block whose text is kept and filtered at its end.
func (s *statement) open(kind, target string) {
	s.w.blocks++
	b := block{kind: kind, target: target, kept: fmt.Sprint(keptVar, s.w.blocks)}
	if s.x.i < len(s.x.tokens) || kind == "filter" {
		b.value = s.x.filters(b.kept)
	}
	s.w.open = append(s.w.open, b)
	s.w.tagged("set " + b.kept)
}

func (s *statement) filter() {
	s.x.tokens = append([]token{{wordToken, "filter"}, {signToken, "|"}}, s.x.tokens[1:]...)
	s.open("filter", "")
}

func (s *statement) endBlock(name string) error {
	n := len(s.w.open)
	if n == 0 || name != "end"+s.w.open[n-1].kind {
		return fmt.Errorf("%s closes nothing", name)
	}
	b := s.w.open[n-1]
	s.w.open = s.w.open[:n-1]
	value := b.kept
	if b.value != "" {
		value = b.value
	}
	s.w.tagged("endset")
	if b.kind == "set" {
		s.w.tagged("set " + b.target + " = " + value)
	} else {
		s.w.out.WriteString("{{ " + printName + "(" + value + ") }}")
	}
	return s.x.end()
}

// macro moves defaults into the body, where a comma in them harms nothing.
func (s *statement) macro() {
	name := s.name()
	s.x.i++
	s.x.expect("(")
	var names, defaults []string
	for s.x.err == nil && !s.x.take(")") {
		param := s.name()
		s.x.i++
		names = append(names, param)
		if s.x.take("=") {
			defaults = append(defaults, fmt.Sprintf("set %s = (%s if (%s is undefined) else %s)", param, s.x.choice(), param, param))
		}
		if s.x.peek().text != ")" {
			s.x.expect(",")
		}
	}
	s.w.tagged("macro " + name + "(" + strings.Join(names, ", ") + ")")
	s.w.tick()
	for _, d := range defaults {
		s.w.tagged(d)
	}
}

func (s *statement) call() {
	head := "call"
	if s.x.take("(") {
		var names []string
		for s.x.err == nil && !s.x.take(")") {
			names = append(names, s.name())
			s.x.i++
			s.x.take(",")
		}
		head += "(" + strings.Join(names, ", ") + ")"
	}
	s.w.tagged(head + " " + s.x.postfix(s.x.primary()))
}

// block is an open set or filter block.
type block struct{ kind, target, kept, value string }
