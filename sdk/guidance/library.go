package guidance

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// Version is that of the llguidance which the shim's layouts are from.
const Version = "1.9.1"

// LibraryName is libguidance's entry in a runtime's runtime.json.
const LibraryName = "libguidance"

// Library is libguidance, loaded into this process.
type Library struct{ path string }

var opened struct {
	sync.Mutex
	library *Library
}

// Open loads the library at path and checks its ABI, its version and that it has every function. A process has one: a second
// Open of the same path returns it, of another one fails.
func Open(path string) (*Library, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, path, "%w", err)
	}
	opened.Lock()
	defer opened.Unlock()
	if l := opened.library; l != nil {
		if l.path != abs {
			return nil, contract.Errorf(contract.PluginMismatch, abs, "this process has already loaded %s", l.path)
		}
		return l, nil
	}
	cpath := C.CString(abs)
	defer C.free(unsafe.Pointer(cpath))
	// The message lives on the thread of the call.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if message := C.cg_open(cpath); message != nil {
		return nil, contract.Errorf(contract.PluginMismatch, abs, "%s", C.GoString(message)).WithNext("run make setup, or install the runtime again")
	}
	if got := C.GoString(C.cg_version()); !strings.Contains(got, "llguidance@"+Version) {
		return nil, contract.Errorf(contract.PluginMismatch, abs, "it is %s, this plugin was built for llguidance %s", got, Version)
	}
	opened.library = &Library{path: abs}
	return opened.library, nil
}
