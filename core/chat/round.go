package chat

import (
	"errors"
	"math"

	"github.com/ardanlabs/jinja"
)

// roundFilter is jinja2's round: Python's banker's rounding for "common", a float in any case.
func roundFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	options := map[string]jinja.Value{"precision": jinja.NewInt(0), "method": jinja.NewString("common")}
	for i, name := range []string{"precision", "method"} {
		if i+1 < len(args) {
			options[name] = args[i+1]
		}
		if v, ok := kwargs[name]; ok {
			options[name] = v
		}
	}
	if len(args) == 0 || !args[0].IsNumber() || !options["precision"].IsInt() || !options["method"].IsString() {
		return jinja.Undefined(), errors.New("round takes a number, a precision and a method")
	}
	x := 0.0
	if args[0].IsInt() {
		x = float64(args[0].AsInt())
	} else {
		x = args[0].AsFloat()
	}
	scale := math.Pow(10, float64(options["precision"].AsInt()))
	switch options["method"].AsString() {
	case "common":
		x = math.RoundToEven(x*scale) / scale
	case "ceil":
		x = math.Ceil(x*scale) / scale
	case "floor":
		x = math.Floor(x*scale) / scale
	default:
		return jinja.Undefined(), errors.New("round: the method is common, ceil or floor")
	}
	if args[0].IsInt() && options["method"].AsString() == "common" {
		return jinja.NewInt(int64(x)), nil
	}
	return jinja.NewFloat(x), nil
}
