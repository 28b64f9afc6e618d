package plugin

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/clademl/clade/sdk/contract"
)

// known refuses a message with fields that this build does not know.
func (s *Server) known(m proto.Message) error {
	unknown := contract.UnknownFields(m)
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return contract.Errorf(contract.UnsupportedOption, strings.Join(unknown, ", "),
		"plugin %s %s does not know this field of %s", s.manifest.Name, s.manifest.Version,
		m.ProtoReflect().Descriptor().Name()).WithNext("update the plugin")
}

// declared refuses options of m that the Family does not declare, naming every one.
func (s *Server) declared(m proto.Message) error {
	var missing []string
	s.walkOptions("", m.ProtoReflect(), &missing)
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return s.undeclared(strings.Join(missing, ", "), string(m.ProtoReflect().Descriptor().Name()))
}

func (s *Server) undeclared(option, where string) error {
	return contract.Errorf(contract.UnsupportedOption, option, "plugin %s %s does not honour this option of %s",
		s.manifest.Name, s.manifest.Version, where).WithNext("leave it out; `clade plugin describe %s` lists what it honours",
		s.manifest.Name)
}

// walkOptions visits the set fields that are options: those with presence, lists and maps. A scalar without presence
// (request_id) is structure, not an option.
func (s *Server) walkOptions(prefix string, m protoreflect.Message, missing *[]string) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + string(fd.Name())
		switch {
		case !fd.HasPresence() && !fd.IsList() && !fd.IsMap():
		case fd.Message() != nil && !fd.IsList() && !fd.IsMap() && hasOptions(fd.Message()):
			s.walkOptions(path+".", v.Message(), missing)
		case !s.options[path]:
			*missing = append(*missing, path)
		}
		return true
	})
}

// hasOptions tells a message of options (Sampling) from one that is a single value (Penalty).
func hasOptions(d protoreflect.MessageDescriptor) bool {
	for i := range d.Fields().Len() {
		if d.Fields().Get(i).HasPresence() {
			return true
		}
	}
	return false
}
