package dense

// Row is one architecture: what its graph does. Its zero value is a decoder of RMS norms, SwiGLU and plain rotary positions, without
// biases, whose config says whether the head is tied.
type Row struct {
	Norms    Norms
	Norm     NormKind
	NormBias Switch   // of a LayerNorm
	Parallel Parallel // how attention and MLP are added

	QKVBias, OBias, MLPBias Switch
	QKNorm                  QKNorm
	QKNormIf                Switch // no switch: always

	Act     Act
	Ungated bool // the MLP is down(act(up(x)))
	Head    Head

	Embed     Embed  // what embeddings are multiplied with
	EmbedBy   Number // the same, from the config
	ScaleBy   Number // attention's scale; without one, HeadDim^-0.5
	ScaleOf   Number // its square's reciprocal
	Residual  Number // what a layer's outputs are multiplied with
	Depth     Number // the same, times the root of the number of layers
	DivideBy  Number // what logits are divided by
	TimesBy   Number // what logits are multiplied with
	WidthBase Number // the width that hidden states are scaled down to before the head
	AttnCap   Number // of tanh over attention's scores
	FinalCap  Number // of tanh over logits

	NoRope     NoRope
	Partial    Number // the part of a head that rotates
	Original   Number // the context that longrope was trained on, where it is not in rope_scaling
	LocalTheta Number // rope's base in sliding layers, which do not scale
	QueryBeta  Number // queries grow with the logarithm of how often the position passed the original context

	GroupedQKV bool // a fused projection holds the heads of one key-value head together
	Latent     bool // queries, keys and values are expanded from latents (MLA)
	ClipFP16   bool // sums of float16 are clipped

	// Renames are pairs of a part of a stored name and what stands for it in the graph's; "" drops the tensor.
	Renames []string
	GGUF    GGUF
}

// Switch is "" for never, always, or the config's flag that decides.
type Switch string

const always Switch = "+"

// Number is the config's key of a number; "" for none.
type Number string

// Norms names the norms of a layer: in front of attention, on its output, in front of the MLP, on its output. "" is none.
type Norms struct{ Attn, AttnOut, MLP, MLPOut string }

var (
	pre      = Norms{Attn: "input_layernorm", MLP: "post_attention_layernorm"}
	post     = Norms{AttnOut: "post_attention_layernorm", MLPOut: "post_feedforward_layernorm"}
	sandwich = Norms{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}
)

// NormKind is how a norm is computed.
type NormKind int

const (
	rms        NormKind = iota
	rmsPlusOne          // the weight is stored less one
	layerNorm
)

// Parallel is how the outputs of a layer are added to its input.
type Parallel struct {
	If    Switch // both read the input's norm
	First bool   // attention's and the MLP's are added first
}

// QKNorm is how queries and keys are normalised.
type QKNorm int

const (
	noQKNorm    QKNorm = iota
	perHead            // each head, one weight for all
	fullWidth          // all heads together
	headLayers         // each head as LayerNorm without bias, a weight [heads, HeadDim]
	headTensors        // the same, a tensor for each head
)

// Act is the MLP's activation.
type Act int

const (
	silu Act = iota
	gelu
	geluTanh
)

// Head is where logits come from.
type Head int

const (
	byConfig Head = iota // tie_word_embeddings
	tied
	own
	ifStored // its own if the file has one
)

// Embed is a fixed multiplier of embeddings.
type Embed int

const (
	plain     Embed = iota
	rootWidth       // the root of the hidden size
	rootWidthBF16
)

// NoRope is which layers do not rotate.
type NoRope int

const (
	none       NoRope = iota
	listed            // where the config's no_rope_layers is 0
	fullLayers        // those that see everything, if others slide
	allFull           // those that see everything
)

// GGUF is what llama.cpp's converter does to a row's tensors, and what its files leave out.
type GGUF struct {
	Interleaved bool // rows of q and k are in interleaved rope order
	FusedUp     bool // ffn_up holds gate and up
	// Widest is the number of layers of the one size whose scale is not that of HeadDim but of HiddenSize/Heads.
	Widest int
	// Slides is the row that a file of this architecture is of when it names a window.
	Slides string
	// Period is after how many layers one sees everything in a file that names a window and no layers.
	Period int
	Before Scales // of files whose converter wrote none
	Still  bool   // rope.scaling.finetuned says whether layers rotate
}

// Scales are MiniCPM's: of embeddings, of a layer's outputs, and the width that hidden states are scaled down to.
type Scales struct{ Embed, Depth, Width float64 }
