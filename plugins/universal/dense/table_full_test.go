//go:build full

package dense

const allRows = true
