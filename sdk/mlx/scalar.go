package mlx

import "unsafe"

// scalarBytes is the memory of one element.
func scalarBytes[T Element](v T) []byte {
	b := make([]byte, unsafe.Sizeof(v))
	*(*T)(unsafe.Pointer(&b[0])) = v
	return b
}
