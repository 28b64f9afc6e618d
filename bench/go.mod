module github.com/clademl/clade/bench

go 1.26.0

require (
	github.com/clademl/clade/core v0.1.0
	github.com/clademl/clade/sdk v0.1.0
	golang.org/x/sys v0.50.0
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)
