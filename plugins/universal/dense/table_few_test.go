//go:build !full

package dense

const allRows = false
