package family

import (
	"embed"
	"fmt"
	"sort"

	record "github.com/clademl/clade/sdk/family"
)

//go:embed embedded/*.yaml
var embedded embed.FS

// Embedded parses the first-party manifests that the host carries, sorted by plugin name. An error is a defect of the
// build, which a test would have found.
func Embedded() ([]Offer, error) {
	entries, err := embedded.ReadDir("embedded")
	if err != nil {
		return nil, err
	}
	offers := make([]Offer, 0, len(entries))
	for _, e := range entries {
		data, err := embedded.ReadFile("embedded/" + e.Name())
		if err != nil {
			return nil, err
		}
		m, err := record.ParseManifest(data)
		if err != nil {
			return nil, fmt.Errorf("embedded %s: %w", e.Name(), err)
		}
		offers = append(offers, Offer{Manifest: m, Source: FromEmbedded})
	}
	sort.Slice(offers, func(i, j int) bool { return offers[i].Manifest.Name < offers[j].Manifest.Name })
	return offers, nil
}
