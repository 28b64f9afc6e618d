module github.com/clademl/clade/native

go 1.26.0
