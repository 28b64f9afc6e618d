module github.com/clademl/clade/plugins/universal

go 1.26

require github.com/clademl/clade/sdk v0.1.0
