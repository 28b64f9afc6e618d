package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// An installed mlx-c replaces the source and the build, never the pinned MLX. It is taken when its version is the
// pinned one and every symbol that it needs from MLX is in the pinned libmlx, so that a libmlxc built against another
// MLX is told here and not by the dynamic linker in a plugin.
//
// CLADE_MLXC_DIR names its prefix: then an mlx-c that does not fit is an error. One that pkg-config finds under the
// name mlxc or mlx-c is a suggestion: if it does not fit, a line says why and the source is built.

// installedMLXC returns the path of an installed libmlxc to use, or "".
func (s *setup) installedMLXC(ctx context.Context, r runtimeSpec) (string, error) {
	if prefix := s.getenv("CLADE_MLXC_DIR"); prefix != "" {
		lib, err := s.mlxcIn(ctx, prefix, r)
		if err != nil {
			return "", fmt.Errorf("CLADE_MLXC_DIR: %w; unset it to have the pinned mlx-c built", err)
		}
		return lib, nil
	}
	for _, name := range []string{"mlxc", "mlx-c"} {
		out, err := exec.Command("pkg-config", "--variable=prefix", name).Output()
		prefix := strings.TrimSpace(string(out))
		if err != nil || prefix == "" {
			continue
		}
		lib, err := s.mlxcIn(ctx, prefix, r)
		if err != nil {
			s.note("the installed mlx-c is not used: %v", err)
			return "", nil
		}
		return lib, nil
	}
	return "", nil
}

// mlxcIn finds libmlxc in a prefix and holds it to the pinned version and the pinned libmlx.
func (s *setup) mlxcIn(ctx context.Context, prefix string, r runtimeSpec) (string, error) {
	lib, err := firstFile(filepath.Base(r.LibMLXC), filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"), filepath.Join(prefix, "lib", "*-linux-gnu"))
	if err != nil {
		return "", err
	}
	versionFile, err := firstFile("MLXCConfigVersion.cmake", filepath.Join(prefix, "share", "cmake", "MLXC"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(versionFile)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^set\(PACKAGE_VERSION "([^"]+)"\)`).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s: no PACKAGE_VERSION in it", versionFile)
	}
	if got := string(m[1]); got != s.versions.MLXC.Version {
		return "", fmt.Errorf("%s: mlx-c is %s, and %s is needed", prefix, got, s.versions.MLXC.Version)
	}
	wheels, err := s.unpacked(ctx, r)
	if err != nil {
		return "", err
	}
	return lib, fits(lib, filepath.Join(wheels, filepath.FromSlash(r.LibMLX)))
}

func firstFile(name string, dirs ...string) (string, error) {
	for _, pattern := range dirs {
		matches, err := filepath.Glob(filepath.Join(pattern, name))
		if err != nil {
			return "", err
		}
		if len(matches) > 0 {
			return filepath.EvalSymlinks(matches[0])
		}
	}
	return "", fmt.Errorf("there is no %s in %s", name, strings.Join(dirs, ", "))
}

// fits checks an installed libmlxc against the pinned libmlx by their symbol tables.
func fits(libmlxc, libmlx string) error {
	needs, own, err := symbols(libmlxc)
	if err != nil {
		return err
	}
	_, offers, err := symbols(libmlx)
	if err != nil {
		return err
	}
	have := make(map[string]bool, len(offers)+len(own))
	for _, list := range [][]string{offers, own} {
		for _, name := range list {
			have[name] = true
		}
	}
	var lacking []string
	mlx := 0
	for _, name := range needs {
		// The namespace mlx::core in both C++ name manglings; what else it needs is the system's.
		if !strings.Contains(name, "N3mlx4core") && !strings.Contains(name, "NK3mlx4core") {
			continue
		}
		mlx++
		if !have[name] {
			lacking = append(lacking, name)
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("%s: it was built against another MLX: %d symbols are not in %s, the first is %s", libmlxc, len(lacking), filepath.Base(libmlx), lacking[0])
	}
	if mlx == 0 {
		return fmt.Errorf("%s: %w", libmlxc, errStatic)
	}
	return nil
}

var errStatic = errors.New("it needs no symbol of MLX, so it brings an MLX of its own and cannot work with the pinned one")
