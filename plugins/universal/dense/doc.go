// Package dense is one graph for ordinary dense decoders: grouped-query attention and an MLP in every layer, with what an
// architecture does otherwise declared as switches.
//
// It reads top-down: the table of architectures (rows.go) and the words it is written in (row.go), Config (config.go), the
// parameters and their names in files (weights.go, names.go), a block (block.go, attention.go, mlp.go), the forward (model.go).
// The oracle is mlx-lm 0.32.2, one file of models/ a row: same operations, same order.
//
// A new row is a line in rows.go, its config dialect in plugin.yaml (families: universal-dense: config: types) and its checkpoints
// in sdk/plugintest/tiny; docs/plugins/rows.md walks through one.
//
// Invariants: no code but the table tests a model_type; a config key that a row does not name is not read; a tensor that a row has
// no place for is refused.
// Not for: mixtures of experts, recurrences, towers.
package dense
