package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

func TestModuleWithAForbiddenLicenceIsNamed(t *testing.T) {
	for _, file := range []string{"GPL-3.0.txt", "LGPL-2.1.txt"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "native", "licences", file))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "COPYING"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		ids, err := licences(map[string]bool{dir: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := judge(ids); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(file, ".txt")) {
			t.Errorf("%s: judged %v as %v", file, ids, err)
		}
	}
}

func TestModuleWithoutAKnownLicenceFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := licences(map[string]bool{dir: true}); err == nil {
		t.Error("a module without a licence file passed")
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("ask the author before you use this program in any way at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := licences(map[string]bool{dir: true}); err == nil {
		t.Error("an unknown text passed")
	}
}

// BUSL and AGPL are names that licensecheck knows; should a newer version drop one, the list above still refuses it.
func TestForbiddenNamesAreRecognized(t *testing.T) {
	known := map[string]bool{}
	for _, l := range licensecheck.BuiltinLicenses() {
		known[l.ID] = true
	}
	for _, id := range []string{"GPL-2.0", "GPL-3.0", "AGPL-3.0", "LGPL-3.0", "SSPL-1.0"} {
		if allowed[id] || judge([]string{id}) == nil {
			t.Errorf("%s is allowed", id)
		}
		if !known[id] && !known[id+"-only"] {
			t.Logf("licensecheck does not know %s", id)
		}
	}
}

func TestOwnBuildIsWalked(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out, "", "", []string{".:."}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.HasPrefix(got, "github.com/google/licensecheck v0.3.1 BSD-3-Clause") {
		t.Errorf("the walk over this program found %q", got)
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("nothing"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(&out, page, "", []string{".:."}); err == nil || !strings.Contains(err.Error(), "does not name it") {
		t.Errorf("a page that names no module passed: %v", err)
	}
}
