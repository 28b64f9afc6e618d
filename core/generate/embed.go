package generate

// EmbedInput is a text to embed, or token ids that are taken as they are.
type EmbedInput struct {
	Text string
	IDs  []int32
}

// EmbedRequest asks for the embeddings of some inputs.
type EmbedRequest struct {
	Inputs []EmbedInput
	// Instruction says what the texts are searched for, where the family knows how to put it before them; "" is none.
	Instruction string
	// Dimensions cuts the vectors to so many values, of length 1 again; 0 leaves them whole.
	Dimensions int
	// Adapter chooses adapters as Settings.Adapter does.
	Adapter *string
}

// Embeddings are the vectors of a request in its order, each of length 1.
type Embeddings struct {
	Vectors [][]float32
	// Tokens of all inputs, with what ends each text.
	Tokens int
}
