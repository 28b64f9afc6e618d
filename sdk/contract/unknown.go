package contract

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// UnknownFields lists the fields of m, and of every message inside it, that this build does not know, as paths of names
// ending in a number ("start.sampling.77"). It is empty when m is fully understood.
func UnknownFields(m proto.Message) []string {
	var out []string
	walkUnknown("", m.ProtoReflect(), &out)
	return out
}

func walkUnknown(prefix string, m protoreflect.Message, out *[]string) {
	for raw := m.GetUnknown(); len(raw) > 0; {
		num, _, n := protowire.ConsumeField(raw)
		if n < 0 {
			*out = append(*out, prefix+"?")
			break
		}
		*out = append(*out, fmt.Sprintf("%s%d", prefix, num))
		raw = raw[n:]
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Message() == nil {
			return true
		}
		name := prefix + string(fd.Name())
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(k protoreflect.MapKey, mv protoreflect.Value) bool {
					walkUnknown(fmt.Sprintf("%s[%v].", name, k), mv.Message(), out)
					return true
				})
			}
		case fd.IsList():
			for i := range v.List().Len() {
				walkUnknown(fmt.Sprintf("%s[%d].", name, i), v.List().Get(i).Message(), out)
			}
		default:
			walkUnknown(name+".", v.Message(), out)
		}
		return true
	})
}
