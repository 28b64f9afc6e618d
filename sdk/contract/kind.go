package contract

import (
	"net/http"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Kind classifies an error: it decides the exit code of the command line and the HTTP status of the server.
type Kind cladev1.Kind

// Bad requests: the caller can change something.
const (
	// InvalidArgument is a value that no model could accept.
	InvalidArgument = Kind(cladev1.Kind_KIND_INVALID_ARGUMENT)
	// UnsupportedOption is a known option that this family, plugin or version does not honour.
	UnsupportedOption = Kind(cladev1.Kind_KIND_UNSUPPORTED_OPTION)
	// UnsupportedModel is a model that no family takes.
	UnsupportedModel = Kind(cladev1.Kind_KIND_UNSUPPORTED_MODEL)
	// UnsupportedModelLoad is a profile, loader and loop that cannot be honoured together.
	UnsupportedModelLoad = Kind(cladev1.Kind_KIND_UNSUPPORTED_MODEL_LOAD)
	// ContextTooLong is a prompt that leaves no room in the context.
	ContextTooLong = Kind(cladev1.Kind_KIND_CONTEXT_TOO_LONG)
	// NotFound is a model, file or plugin that is not there.
	NotFound = Kind(cladev1.Kind_KIND_NOT_FOUND)
)

// Memory.
const (
	// MemoryAdmission is a plan that exceeds the budget; nothing was loaded.
	MemoryAdmission = Kind(cladev1.Kind_KIND_MEMORY_ADMISSION)
	// OutOfMemory is memory that ran out after the plan was admitted.
	OutOfMemory = Kind(cladev1.Kind_KIND_OUT_OF_MEMORY)
)

// ArtifactCorrupt is a model file or config that breaks its own format, or a known type with a missing field.
const ArtifactCorrupt = Kind(cladev1.Kind_KIND_ARTIFACT_CORRUPT)

// Plugins.
const (
	// PluginMissing is a family whose plugin is not installed.
	PluginMissing = Kind(cladev1.Kind_KIND_PLUGIN_MISSING)
	// PluginUntrusted is a plugin whose source or digest is not trusted.
	PluginUntrusted = Kind(cladev1.Kind_KIND_PLUGIN_UNTRUSTED)
	// PluginMismatch is a plugin that does not fit this host, runtime or manifest.
	PluginMismatch = Kind(cladev1.Kind_KIND_PLUGIN_MISMATCH)
	// PluginCrashed is a plugin that ended, hung or spoke garbage.
	PluginCrashed = Kind(cladev1.Kind_KIND_PLUGIN_CRASHED)
)

// The rest.
const (
	// Internal is a defect in clade or a plugin.
	Internal = Kind(cladev1.Kind_KIND_INTERNAL)
	// Busy is a full queue; try again later.
	Busy = Kind(cladev1.Kind_KIND_BUSY)
	// Cancelled is work that its caller ended.
	Cancelled = Kind(cladev1.Kind_KIND_CANCELLED)
	// Unavailable is a service that is starting or draining.
	Unavailable = Kind(cladev1.Kind_KIND_UNAVAILABLE)
)

// statusClientClosed is nginx's code for a client that went away before the answer.
const statusClientClosed = 499

type kindFacts struct {
	name string
	exit int
	http int
}

// kinds is the table of DESIGN section 4; the zero Kind reads as Internal.
var kinds = map[Kind]kindFacts{
	InvalidArgument:      {"invalid-argument", 2, http.StatusBadRequest},
	UnsupportedOption:    {"unsupported-option", 2, http.StatusBadRequest},
	UnsupportedModel:     {"unsupported-model", 3, http.StatusBadRequest},
	UnsupportedModelLoad: {"unsupported-model-load", 3, http.StatusBadRequest},
	MemoryAdmission:      {"memory-admission", 4, http.StatusBadRequest},
	OutOfMemory:          {"out-of-memory", 4, http.StatusInsufficientStorage},
	ContextTooLong:       {"context-too-long", 4, http.StatusBadRequest},
	ArtifactCorrupt:      {"artifact-corrupt", 5, http.StatusUnprocessableEntity},
	NotFound:             {"not-found", 5, http.StatusNotFound},
	PluginMissing:        {"plugin-missing", 6, http.StatusServiceUnavailable},
	PluginUntrusted:      {"plugin-untrusted", 6, http.StatusServiceUnavailable},
	PluginMismatch:       {"plugin-mismatch", 1, http.StatusInternalServerError},
	PluginCrashed:        {"plugin-crashed", 1, http.StatusInternalServerError},
	Internal:             {"internal", 1, http.StatusInternalServerError},
	Busy:                 {"busy", 1, http.StatusTooManyRequests},
	Cancelled:            {"cancelled", 130, statusClientClosed},
	Unavailable:          {"unavailable", 1, http.StatusServiceUnavailable},
}

func (k Kind) facts() kindFacts {
	if f, ok := kinds[k]; ok {
		return f
	}
	return kinds[Internal]
}

// String is the code scripts match on, such as "unsupported-model-load".
func (k Kind) String() string { return k.facts().name }

// ExitCode is the command line's exit code for an error of this Kind.
func (k Kind) ExitCode() int { return k.facts().exit }

// HTTPStatus is the server's status for an error of this Kind.
func (k Kind) HTTPStatus() int { return k.facts().http }
