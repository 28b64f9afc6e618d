package tokenizer

import "unicode"

// Code points that the libraries behind `tokenizers` 0.23.3 class and Go's Unicode 15.0 does not know yet. Found by asking
// `tokenizers` about every code point with testdata/unicode_classes.py; unicode_test.go (make test-full) asks again.

// extraL is \p{L}.
var extraL = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1c89, 0x1c8a, 1},
		{0xa7cb, 0xa7cd, 1},
		{0xa7da, 0xa7dc, 1},
	},
	R32: []unicode.Range32{
		{0x105c0, 0x105f3, 1},
		{0x10d4a, 0x10d65, 1},
		{0x10d6f, 0x10d85, 1},
		{0x10ec2, 0x10ec4, 1},
		{0x11380, 0x11389, 1},
		{0x1138b, 0x1138b, 1},
		{0x1138e, 0x1138e, 1},
		{0x11390, 0x113b5, 1},
		{0x113b7, 0x113b7, 1},
		{0x113d1, 0x113d1, 1},
		{0x113d3, 0x113d3, 1},
		{0x11bc0, 0x11be0, 1},
		{0x13460, 0x143fa, 1},
		{0x16100, 0x1611d, 1},
		{0x16d40, 0x16d6c, 1},
		{0x18cff, 0x18cff, 1},
		{0x1e5d0, 0x1e5ed, 1},
		{0x1e5f0, 0x1e5f0, 1},
		{0x2ebf0, 0x2ee5d, 1},
	},
}

// extraN is \p{N}.
var extraN = &unicode.RangeTable{
	R32: []unicode.Range32{
		{0x10d40, 0x10d49, 1},
		{0x116d0, 0x116e3, 1},
		{0x11bf0, 0x11bf9, 1},
		{0x16130, 0x16139, 1},
		{0x16d70, 0x16d79, 1},
		{0x1ccf0, 0x1ccf9, 1},
		{0x1e5f1, 0x1e5fa, 1},
	},
}

// extraM is \p{M}.
var extraM = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x0897, 0x0897, 1},
	},
	R32: []unicode.Range32{
		{0x10d69, 0x10d6d, 1},
		{0x10efc, 0x10efc, 1},
		{0x113b8, 0x113c0, 1},
		{0x113c2, 0x113c2, 1},
		{0x113c5, 0x113c5, 1},
		{0x113c7, 0x113ca, 1},
		{0x113cc, 0x113d0, 1},
		{0x113d2, 0x113d2, 1},
		{0x113e1, 0x113e2, 1},
		{0x11f5a, 0x11f5a, 1},
		{0x1611e, 0x1612f, 1},
		{0x1e5ee, 0x1e5ef, 1},
	},
}

// extraNumeric is what Digits splits.
var extraNumeric = &unicode.RangeTable{
	R32: []unicode.Range32{
		{0x10d40, 0x10d49, 1},
		{0x116d0, 0x116e3, 1},
		{0x11bf0, 0x11bf9, 1},
		{0x11de0, 0x11de9, 1},
		{0x16130, 0x16139, 1},
		{0x16d70, 0x16d79, 1},
		{0x16ff4, 0x16ff6, 1},
		{0x1ccf0, 0x1ccf9, 1},
		{0x1e5f1, 0x1e5fa, 1},
	},
}

// keepNFD is what NFD leaves as it is in `tokenizers`, whose normalization tables are older than x/text's.
var keepNFD = &unicode.RangeTable{
	R32: []unicode.Range32{
		{0x11938, 0x11938, 1},
	},
}

// keepNFK is the same for NFKD and NFKC.
var keepNFK = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x32ff, 0x32ff, 1},
		{0xa7f2, 0xa7f4, 1},
		{0xab69, 0xab69, 1},
	},
	R32: []unicode.Range32{
		{0x10781, 0x10785, 1},
		{0x10787, 0x107b0, 1},
		{0x107b2, 0x107ba, 1},
		{0x11938, 0x11938, 1},
		{0x1e030, 0x1e06d, 1},
		{0x1f16c, 0x1f16c, 1},
		{0x1fbf0, 0x1fbf9, 1},
	},
}

// extraLower are lower-case mappings that Rust knows and Go's Unicode 15.0 does not: [lo, hi] + delta.
var extraLower = []struct{ lo, hi, delta rune }{
	{0x1c89, 0x1c89, 1},
	{0xa7cb, 0xa7cb, -42343},
	{0xa7cc, 0xa7cc, 1},
	{0xa7ce, 0xa7ce, 1},
	{0xa7d2, 0xa7d2, 1},
	{0xa7d4, 0xa7d4, 1},
	{0xa7da, 0xa7da, 1},
	{0xa7dc, 0xa7dc, -42561},
	{0x10d50, 0x10d65, 32},
	{0x16ea0, 0x16eb8, 27},
}
