package main

import (
	"context"
	"debug/elf"
	"debug/macho"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// source returns the folder bin/native/mlx-c with the pinned mlx-c source, brought by cargo if need be.
func (s *setup) source(ctx context.Context) (string, error) {
	c := s.versions.MLXC
	dir, err := s.step("mlx-c", c.TreeSHA256, func(tmp string) error {
		if err := s.need(toolCargo); err != nil {
			return err
		}
		vendor := filepath.Join(s.work, "vendor.tmp")
		if err := os.RemoveAll(vendor); err != nil {
			return err
		}
		defer os.RemoveAll(vendor)
		s.note("bringing the mlx-c %s source (crate %s %s)", c.Version, c.Crate, c.CrateVersion)
		manifest := filepath.Join(s.root, "native", "mlxc-source", "Cargo.toml")
		if err := s.command(ctx, s.work, "cargo", "vendor", "--quiet", "--locked", "--versioned-dirs", "--manifest-path", manifest, vendor); err != nil {
			return err
		}
		tree := filepath.Join(vendor, c.Crate+"-"+c.CrateVersion, filepath.FromSlash(c.Tree))
		if err := s.checkTree(tree); err != nil {
			return err
		}
		return os.CopyFS(tmp, os.DirFS(tree))
	})
	return dir, err
}

func (s *setup) checkTree(tree string) error {
	c := s.versions.MLXC
	got, err := treeDigest(tree)
	if err != nil {
		return fmt.Errorf("crate %s %s: %w", c.Crate, c.CrateVersion, err)
	}
	if got != c.TreeSHA256 {
		return fmt.Errorf("crate %s %s: %s: digest mismatch: pinned %s, got %s; the source was not used, see native/versions.json",
			c.Crate, c.CrateVersion, c.Tree, c.TreeSHA256, got)
	}
	return nil
}

// origin is the one entry of libmlxc's search path: its own folder, where libmlx lies.
func (s *setup) origin() string {
	if s.os == "darwin" {
		return "@loader_path"
	}
	return "$ORIGIN"
}

func (s *setup) cmakeFlags() []string {
	return []string{
		"-DCMAKE_BUILD_TYPE=Release",
		"-DMLX_C_USE_SYSTEM_MLX=ON", // otherwise its CMake file would download MLX by itself
		"-DBUILD_SHARED_LIBS=ON",
		"-DMLX_C_BUILD_EXAMPLES=OFF",
		"-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
		"-DCMAKE_INSTALL_RPATH=" + s.origin(),
		"-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=OFF",
	}
}

// buildKey digests what determines the built libmlxc.
func (s *setup) buildKey(r runtimeSpec) string {
	parts := append([]string{s.versions.MLXC.TreeSHA256}, s.cmakeFlags()...)
	for _, w := range r.Wheels {
		parts = append(parts, w.SHA256)
	}
	return textDigest(parts...)
}

// build makes libmlxc against the unpacked wheel and returns the folder that holds it. It always starts in a fresh
// folder: an object file that a killed compiler left half-written would look finished to make.
func (s *setup) build(ctx context.Context, r runtimeSpec) (string, error) {
	return s.step("libmlxc-"+r.Variant, s.buildKey(r), func(tmp string) error {
		if err := s.need(toolCMake, toolMake, toolCC, toolCXX); err != nil {
			return err
		}
		src, err := s.source(ctx)
		if err != nil {
			return err
		}
		mlx, err := s.unpacked(ctx, r)
		if err != nil {
			return err
		}
		work := filepath.Join(tmp, "build")
		root := filepath.Join(mlx, "mlx")
		args := append([]string{"-S", src, "-B", work, "-DMLX_ROOT=" + root, "-DCMAKE_PREFIX_PATH=" + root}, s.cmakeFlags()...)
		args = append(args, "-DCMAKE_CXX_FLAGS="+prefixMap(src, "mlx-c")+" "+prefixMap(mlx, "mlx"))
		s.note("building libmlxc %s, about a minute", s.versions.MLXC.Version)
		if err := s.command(ctx, tmp, "cmake", args...); err != nil {
			return err
		}
		if err := s.command(ctx, tmp, "cmake", "--build", work, "--parallel", strconv.Itoa(runtime.NumCPU())); err != nil {
			return err
		}
		lib := filepath.Base(r.LibMLXC)
		if err := os.Rename(filepath.Join(work, lib), filepath.Join(tmp, lib)); err != nil {
			return fmt.Errorf("the build made no %s: %w", lib, err)
		}
		if s.os != "darwin" { // Mach-O paths are what the linker was told; @loader_path needs no later rewrite
			if err := checkRunpath(filepath.Join(tmp, lib), s.origin()); err != nil {
				return err
			}
		}
		return os.RemoveAll(work)
	})
}

// checkRunpath holds an ELF library to one search path entry.
func checkRunpath(lib, want string) error {
	f, err := elf.Open(lib)
	if err != nil {
		return fmt.Errorf("%s: %w", lib, err)
	}
	defer f.Close()
	rpath, err := f.DynString(elf.DT_RPATH)
	if err != nil {
		return fmt.Errorf("%s: %w", lib, err)
	}
	runpath, err := f.DynString(elf.DT_RUNPATH)
	if err != nil {
		return fmt.Errorf("%s: %w", lib, err)
	}
	if len(rpath) > 0 || !slices.Equal(runpath, []string{want}) {
		return fmt.Errorf("%s: its RUNPATH is %q (RPATH %q), want exactly %q", lib, runpath, rpath, want)
	}
	return nil
}

// symbols lists what a shared library needs from others and what it offers.
func symbols(lib string) (needs, offers []string, err error) {
	f, err := os.Open(lib)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if e, err := elf.NewFile(f); err == nil {
		return elfSymbols(e)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, nil, err
	}
	m, err := macho.NewFile(f)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: neither an ELF nor a Mach-O library", lib)
	}
	if needs, err = m.ImportedSymbols(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", lib, err)
	}
	if m.Symtab != nil {
		for _, sym := range m.Symtab.Syms {
			if sym.Sect != 0 {
				offers = append(offers, sym.Name)
			}
		}
	}
	return needs, offers, nil
}

func elfSymbols(e *elf.File) (needs, offers []string, err error) {
	all, err := e.DynamicSymbols()
	if err != nil {
		return nil, nil, err
	}
	for _, sym := range all {
		switch {
		case sym.Section != elf.SHN_UNDEF:
			offers = append(offers, sym.Name)
		case elf.ST_BIND(sym.Info) != elf.STB_WEAK:
			needs = append(needs, sym.Name)
		}
	}
	return needs, offers, nil
}

// prefixMap keeps a builder's folder out of a library. It is quoted, as CMake hands its flags to a shell and a folder's name may
// hold spaces.
func prefixMap(folder, name string) string { return `"-ffile-prefix-map=` + folder + "=" + name + `"` }
