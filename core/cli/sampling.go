package cli

import (
	"github.com/spf13/cobra"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// samplingFlags are the flags of verbs that generate; one that was not given leaves its setting to the model's files.
type samplingFlags struct {
	cmd                             *cobra.Command
	maxTokens, topK                 uint32
	temperature, topP, minP         float64
	typicalP                        float64
	xtcProbability, xtcThreshold    float64
	repetition, presence, frequency float64
	seed                            uint64
	stop                            []string
	ignoreEOS                       bool
	lora                            string
}

func addSamplingFlags(cmd *cobra.Command) *samplingFlags {
	f, flags := &samplingFlags{cmd: cmd}, cmd.Flags()
	flags.Uint32Var(&f.maxTokens, "max-tokens", 0, "most tokens to generate")
	flags.Float64Var(&f.temperature, "temperature", 0, "0 is greedy, the default unless generation_config.json samples")
	flags.Float64Var(&f.topP, "top-p", 1, "keep the likeliest tokens of this probability mass")
	flags.Uint32Var(&f.topK, "top-k", 0, "keep this many of the likeliest tokens (0: all)")
	flags.Float64Var(&f.minP, "min-p", 0, "keep tokens of at least this share of the likeliest's probability")
	flags.Float64Var(&f.typicalP, "typical-p", 1, "keep the tokens nearest to the entropy of this probability mass")
	flags.Float64Var(&f.xtcProbability, "xtc-probability", 0, "how often the likeliest tokens are left out")
	flags.Float64Var(&f.xtcThreshold, "xtc-threshold", 0.1, "tokens above this probability are left out, all but the least likely of them")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the sampling noise (drawn when not given)")
	flags.StringArrayVar(&f.stop, "stop", nil, "text that ends the answer; may be repeated")
	flags.Float64Var(&f.repetition, "repetition-penalty", 1, "penalty on repeated tokens")
	flags.Float64Var(&f.presence, "presence-penalty", 0, "penalty on tokens that occurred")
	flags.Float64Var(&f.frequency, "frequency-penalty", 0, "penalty on tokens for each time they occurred")
	flags.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on after the end of the turn")
	flags.StringVar(&f.lora, "lora", "", loraUsage)
	return f
}

// loraUsage describes the flag that chooses among the adapters that the model has.
const loraUsage = "adapters to answer with, by name: a+b:0.5, or none (default: every --adapter)"

func (f *samplingFlags) settings() generate.Settings {
	var s generate.Settings
	given := f.cmd.Flags().Changed
	if given("max-tokens") {
		s.MaxTokens = &f.maxTokens
	}
	if given("temperature") {
		s.Temperature = &f.temperature
	}
	if given("top-p") {
		s.TopP = &f.topP
	}
	if given("top-k") {
		s.TopK = &f.topK
	}
	if given("min-p") {
		s.MinP = &f.minP
	}
	if given("typical-p") {
		s.TypicalP = &f.typicalP
	}
	if given("xtc-probability") {
		s.XTCProbability, s.XTCThreshold = &f.xtcProbability, &f.xtcThreshold
	} else if given("xtc-threshold") {
		s.XTCThreshold = &f.xtcThreshold
	}
	if given("seed") {
		s.Seed = &f.seed
	}
	if given("repetition-penalty") {
		s.Repetition = &generate.Penalty{Value: f.repetition}
	}
	if given("presence-penalty") {
		s.Presence = &generate.Penalty{Value: f.presence}
	}
	if given("frequency-penalty") {
		s.Frequency = &generate.Penalty{Value: f.frequency}
	}
	if given("ignore-eos") {
		s.IgnoreEOS = &f.ignoreEOS
	}
	if given("lora") {
		s.Adapter = &f.lora
	}
	s.Stop = f.stop
	return s
}

// thinkingFlags say how a model is to reason.
type thinkingFlags struct{ thinking, effort *string }

func addThinkingFlags(cmd *cobra.Command) thinkingFlags {
	return thinkingFlags{
		cmd.Flags().String("thinking", "", "on or off: whether the model reasons first (its template decides when not given)"),
		cmd.Flags().String("reasoning-effort", "", "none, or how much the model reasons, as its template names it; beats --thinking"),
	}
}

// conversation is what the flags ask for.
func (f thinkingFlags) conversation() (chat.Conversation, error) {
	c := chat.Conversation{Effort: *f.effort}
	var err error
	c.Thinking, err = onOff("--thinking", *f.thinking)
	return c, err
}

// onOff reads a switch that may be left open.
func onOff(name, text string) (*bool, error) {
	switch text {
	case "":
		return nil, nil
	case "on", "off":
		on := text == "on"
		return &on, nil
	}
	return nil, contract.Errorf(contract.InvalidArgument, name, "is %q; want on or off", text)
}
