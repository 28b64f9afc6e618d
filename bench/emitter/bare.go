package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/clademl/clade/bench/tick"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// bareServer sends the same messages at the same times as the plugin over nothing but gRPC and a Unix socket: no
// supervision, no mutual TLS, no outbox.
type bareServer struct {
	cladev1.UnimplementedPluginServiceServer
	interval time.Duration
}

func (b bareServer) Generate(stream grpc.BidiStreamingServer[cladev1.GenerateRequest, cladev1.GenerateResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	return tick.Emit(stream.Context(), b.interval, int(first.GetStart().GetMaxTokens()), func(id int32) error {
		return stream.Send(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: &cladev1.TokenStep{Ids: []int32{id}}}})
	})
}

// serveBare listens on a Unix socket until its standard input ends.
func serveBare(socket string) error {
	d, err := interval()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	cladev1.RegisterPluginServiceServer(server, bareServer{interval: d})
	go func() {
		var b [1]byte
		os.Stdin.Read(b[:])
		server.Stop()
	}()
	fmt.Println("ready")
	return server.Serve(l)
}
