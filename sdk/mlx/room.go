package mlx

import (
	"fmt"

	"github.com/clademl/clade/sdk/contract"
)

// roomCheckFrom is the size below which asking the system costs more than it tells.
const roomCheckFrom = 64 << 20

// checkRoom refuses memory that the machine does not have: MLX's CPU allocator hands out a null pointer then, and the
// first write to it ends the process.
func checkRoom(op string, n int) error {
	if n < roomCheckFrom {
		return nil
	}
	free, err := availableMemory()
	if err != nil {
		return contract.Errorf(contract.Internal, op, "available memory: %w", err)
	}
	if int64(n) > free {
		return &contract.Error{Kind: contract.OutOfMemory, Subject: op, Message: fmt.Sprintf("%d MiB wanted, %d MiB available", n>>20, free>>20)}
	}
	return nil
}
