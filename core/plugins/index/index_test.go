package index

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

const manifestText = `{"schema":1,"name":"echo","version":"0.1.0","contract":[1],"runtime":{"mlx":["0.32.2"]},"families":[` +
	`{"graph":"example.org/echo","label":"echo","tier":"targeted","status":"available","model_types":["echo"],` +
	`"accepts":[{"path":"model_type","op":"eq","value":"echo"}],"config":{"from":["$"]},"loaders":["safetensors"],"loop":"autoregressive",` +
	`"fidelity":"l3-measured","specialization":"dedicated","profile":"echo-resident","capabilities":["chat"],"fingerprint":"config"}]}`

func sample(t testing.TB) (minisign.PrivateKey, *Index) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	a := Archive{OS: "linux", Arch: "amd64", URLs: []string{"archives/a.tar.gz"}, Size: 10, Unpacked: 20, SHA256: strings.Repeat("ab", 32)}
	cpu := a
	cpu.Variant = "cpu"
	return private, &Index{
		Schema: 1, Name: "example.org", Serial: 7, Created: time.Now().UTC(), Expires: time.Now().Add(time.Hour).UTC(), Keys: []string{public.String()},
		Plugins:  map[string]*Plugin{"echo": {Versions: []Version{{Version: "0.1.0", Manifest: json.RawMessage(manifestText), Platforms: []Archive{a}}}}},
		Runtimes: []Runtime{{MLX: "0.32.2", MLXC: "0.6.0", Archive: cpu}},
	}
}

func TestAnIndexFitsItsPublishedSchema(t *testing.T) {
	_, x := sample(t)
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("index.json", doc))
	schema, err := c.Compile("index.json")
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(v))
	_, err = Parse(raw)
	require.NoError(t, err)

	// What the schema refuses, the parser refuses too.
	for _, edit := range []func(x *Index){
		func(x *Index) { x.Schema = 2 },
		func(x *Index) { x.Name = "../x" },
		func(x *Index) { x.Serial = 0 },
		func(x *Index) { x.Keys = nil },
		func(x *Index) { x.Plugins["echo"].Versions = nil },
		func(x *Index) { x.Plugins["Echo/"] = x.Plugins["echo"] },
		func(x *Index) { x.Plugins["echo"].Versions[0].Platforms[0].SHA256 = "AB" },
		func(x *Index) { x.Plugins["echo"].Versions[0].Platforms[0].Size = 0 },
		func(x *Index) { x.Plugins["echo"].Versions[0].Platforms[0].URLs = nil },
		func(x *Index) { x.Runtimes[0].Variant = "" },
		func(x *Index) { x.Runtimes[0].OS = "Linux!" },
	} {
		_, x := sample(t)
		edit(x)
		raw, err := json.Marshal(x)
		require.NoError(t, err)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		require.NoError(t, err)
		require.Error(t, schema.Validate(v), "%s", raw)
		_, err = Parse(raw)
		require.Error(t, err, "%s", raw)
	}
}

func TestAnUnknownFieldIsNotIgnored(t *testing.T) {
	_, x := sample(t)
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	_, err = Parse(bytes.Replace(raw, []byte(`"schema":1`), []byte(`"schema":1,"only_before":"2027"`), 1))
	require.ErrorContains(t, err, "only_before")
}

func TestAManifestOfAnotherPluginIsRefused(t *testing.T) {
	_, x := sample(t)
	x.Plugins["other"] = x.Plugins["echo"]
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	_, err = Parse(raw)
	require.ErrorContains(t, err, "its manifest is of echo 0.1.0")
}

func TestAnyKeyOfTheSourceMaySign(t *testing.T) {
	old, x := sample(t)
	next, _ := sample(t)
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	e := Expected{Name: x.Name, Keys: []string{old.Public().(minisign.PublicKey).String(), next.Public().(minisign.PublicKey).String()}, Now: time.Now()}
	for _, key := range []minisign.PrivateKey{old, next} {
		a, err := Read(raw, Sign(key, raw, x), "here", e)
		require.NoError(t, err)
		require.Equal(t, KeyID(key.ID()), a.Signer)
	}
}

func TestReleasesStandBeforePreReleasesAndNewerBeforeOlder(t *testing.T) {
	var versions []Version
	for _, v := range []string{"0.9.0", "0.10.0", "1.0.0-rc.1", "0.10.0-rc.2"} {
		versions = append(versions, Version{Version: v})
	}
	require.Equal(t, 1, compare("0.10.0", "0.9.0"))
	require.Equal(t, -1, compare("0.10.0-rc.2", "0.10.0"))
	got := candidates(versions, "")
	require.Equal(t, "1.0.0-rc.1", got[2].Version, "a pre-release comes after every release")
	require.Equal(t, "0.10.0-rc.2", got[3].Version)
}

func FuzzParse(f *testing.F) {
	_, x := sample(f)
	raw, err := json.Marshal(x)
	require.NoError(f, err)
	f.Add(raw)
	for _, s := range []string{"{}", "[]", "null", `{"schema":1}`, string(raw) + string(raw), strings.ReplaceAll(string(raw), "0.1.0", "x")} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Parse(data)
		if err != nil {
			return
		}
		for name, p := range x.Plugins {
			_, _ = x.Choose(name, "", Machine{OS: "linux", Arch: "amd64", Variants: []string{"cpu"}})
			require.NotEmpty(t, p.Versions)
		}
		for _, a := range x.Archives() {
			require.Len(t, a.SHA256, 64)
			require.Positive(t, a.Size)
		}
	})
}

func FuzzSignature(f *testing.F) {
	key, x := sample(f)
	raw := []byte("{}")
	f.Add(Sign(key, raw, x))
	f.Add([]byte("untrusted comment: x\nAAAA\ntrusted comment: y\nBBBB\n"))
	f.Fuzz(func(t *testing.T, signature []byte) {
		other, _ := sample(t)
		_, err := Read(raw, signature, "here", Expected{Name: "example.org", Keys: []string{other.Public().(minisign.PublicKey).String()}, Now: time.Now()})
		require.Error(t, err)
	})
}
