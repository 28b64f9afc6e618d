package contract

import "github.com/hashicorp/go-plugin"

// Major is the newest contract version this build speaks; go-plugin negotiates the highest both sides have.
const Major = 1

// DispenseName is the one name a plugin set is keyed by.
const DispenseName = "family"

// Environment of a plugin process. Everything else comes from the host's allow-list.
const (
	// EnvRuntime is the absolute directory of the runtime that the plugin opens at its first Plan or Open.
	EnvRuntime = "CLADE_RUNTIME"
	// EnvLiveness says that stdin is the host's liveness pipe: the plugin exits when it reads EOF.
	EnvLiveness = "CLADE_LIVENESS"
)

// MaxMessage bounds a gRPC message on both sides, in bytes. Senders stay under MessageBudget.
const (
	MaxMessage    = 4 << 20
	MessageBudget = 1 << 20
)

// Handshake tells a person who starts a plugin by hand what it is; it is not security.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{
		ProtocolVersion:  Major,
		MagicCookieKey:   "CLADE_PLUGIN",
		MagicCookieValue: "d1a4c6f0-family",
	}
}
