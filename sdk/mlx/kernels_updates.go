package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_linear_updates
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// packedUpdates is PackedLinear with updates, its weights ws checked.
func (s *Scope) packedUpdates(x *Array, l PackedLinear, ws *[C.CK_MAX_WEIGHTS]unsafe.Pointer) *Array {
	const op = "packed_linear"
	if len(l.Updates) > C.CK_MAX_UPDATES {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d updates", len(l.Updates))})
		return inert
	}
	updates := make([]C.ck_update, len(l.Updates))
	for i, u := range l.Updates {
		if u.A == nil || u.A.ctx == nil || u.B == nil || u.B.ctx == nil {
			_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("update %d is closed", i)})
			return inert
		}
		updates[i] = C.ck_update{a: u.A.ctx, b: u.B.ctx, part: C.int(u.Part), first: C.int(u.First), rows: C.int(u.Rows), scale: C.float(u.Scale)}
	}
	o := C.ck_linear_updates(x.ctx, &ws[0], C.int(len(l.Weights)), C.int(l.Gate), l.Norm.handle(), C.float(l.Eps), l.Residual.handle(),
		&updates[0], C.int(len(updates)), s.stream)
	runtime.KeepAlive(l.Updates)
	return s.one(op, o, x)
}
