package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

func (s *setup) kernelFlags() []string {
	return []string{"-DCMAKE_BUILD_TYPE=Release"}
}

// kernelsKey digests what determines the built libcladekernels; "" for a runtime without one.
func (s *setup) kernelsKey(r runtimeSpec) (string, error) {
	if r.LibKernels == "" {
		return "", nil
	}
	source, err := treeDigest(filepath.Join(s.root, "native", "kernels"))
	if err != nil {
		return "", err
	}
	parts := append([]string{source}, s.kernelFlags()...)
	for _, w := range r.Wheels {
		parts = append(parts, w.SHA256)
	}
	return textDigest(parts...), nil
}

// kernels makes libcladekernels against the unpacked wheel and returns its path, "" for a runtime without one.
func (s *setup) kernels(ctx context.Context, r runtimeSpec) (string, error) {
	key, err := s.kernelsKey(r)
	if err != nil || key == "" {
		return "", err
	}
	lib := filepath.Base(r.LibKernels)
	dir, err := s.step("kernels-"+r.Variant, key, func(tmp string) error {
		if err := s.need(toolCMake, toolMake, toolCC, toolCXX); err != nil {
			return err
		}
		mlx, err := s.unpacked(ctx, r)
		if err != nil {
			return err
		}
		source, work, root := filepath.Join(s.root, "native", "kernels"), filepath.Join(tmp, "build"), filepath.Join(mlx, "mlx")
		args := append([]string{"-S", source, "-B", work, "-DMLX_ROOT=" + root, "-DCMAKE_PREFIX_PATH=" + root}, s.kernelFlags()...)
		args = append(args, "-DCMAKE_CXX_FLAGS="+prefixMap(source, "kernels")+" "+prefixMap(mlx, "mlx"))
		s.note("building libcladekernels, about a minute")
		if err := s.command(ctx, tmp, "cmake", args...); err != nil {
			return err
		}
		if err := s.command(ctx, tmp, "cmake", "--build", work, "--parallel", strconv.Itoa(runtime.NumCPU())); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(work, lib), filepath.Join(tmp, lib)); err != nil {
			return fmt.Errorf("the build made no %s: %w", lib, err)
		}
		if s.os != "darwin" {
			if err := checkRunpath(filepath.Join(tmp, lib), s.origin()); err != nil {
				return err
			}
		}
		return os.RemoveAll(work)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, lib), nil
}
