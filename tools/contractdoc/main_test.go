package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheReferenceIsThatOfTheProtoFiles(t *testing.T) {
	want, err := reference(filepath.Join("../..", protos))
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(filepath.Join("../..", target))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is out of date: run make generate", target)
	}
	for _, part := range []string{
		"## PluginService", "| `Generate` | stream [GenerateRequest](#generaterequest) | stream [GenerateResponse](#generateresponse) |",
		"| `temperature` | 1 | optional double | 0 is greedy. |", "| `KIND_BUSY` | 15 |", "one of action: uint32",
	} {
		if !strings.Contains(want, part) {
			t.Errorf("the reference lacks %q", part)
		}
	}
}
