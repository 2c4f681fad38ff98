# btools: small Unix programs that find, launch and clean up after browsers.
# "make help" lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
GO      ?= go
TAGS     = urfave_cli_no_docs
# Static: no C library to load at each start, and none that has to match.
export CGO_ENABLED ?= 0
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null))
LDFLAGS  = -s -w $(VERSION:%=-X btools/lib/cli.release=%)
BIN     ?= bin
PROGRAMS = $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))

.PHONY: help build windows demo deps test fuzz bench install lint cross dist packages packages-test image licenses clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 16

build: ## build the programs into bin/
	@mkdir -p $(BIN)
	$(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ $(PROGRAMS:%=./cmd/%)

windows: build ## build blaunch.exe, by which WSL_WINDOWS launches browsers of Windows
	GOOS=windows $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/blaunch

demo: build ## show the main job: two logins on one browser, a click, a picture, nothing left
	@scripts/install-deps demo
	@$(GO) run -trimpath -tags $(TAGS) ./scripts/demo

deps: ## install what the tests need: browsers, Node.js, npm packages
	@scripts/install-deps test

test: deps ## install what the tests need and run them, on real browsers; PKG=./lib/tools; LONG=1: all; RACE=1
	@$(GO) run -trimpath -tags $(TAGS) ./scripts/suite $(PKG)

fuzz: ## run each fuzz target for FUZZTIME (30s)
	@scripts/fuzz

bench: build deps ## measure against peers, one table
	@scripts/bench/run

lint: ## formatting, lengths of lines, vet, scripts, man pages, completions
	@scripts/install-deps lint
	@scripts/lint

cross: ## build and vet for macOS and Windows
	@for os in darwin windows; do \
	  GOOS=$$os $(GO) vet -trimpath -tags $(TAGS) ./... || exit 1; \
	done

dist: ## write a release to dist/: archives, bundles for MCP hosts, checksums
	@scripts/dist

packages: ## add .deb, .rpm, .apk and Arch packages to dist/ (nfpm)
	@scripts/packages

packages-test: ## check what is in dist/: install, run a browser, purge (root)
	@scripts/packages-test

image: ## make and test an OCI image with a browser in dist/ (root)
	@scripts/image

licenses: ## write THIRD_PARTY, the licences of all that the programs link
	@scripts/licenses >THIRD_PARTY

# A user's units go where systemd looks with PREFIX=/usr, /usr/local and ~/.local:
# in the last one it looks in no lib/systemd/user.
install: build ## install programs, man pages, completions and units (PREFIX=, DESTDIR=)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(PROGRAMS:%=$(BIN)/%) $(wildcard $(BIN)/blaunch.exe) $(DESTDIR)$(PREFIX)/bin
	for n in 1 5 7; do \
	  install -d $(DESTDIR)$(PREFIX)/share/man/man$$n && \
	  install -m 644 man/*.$$n $(DESTDIR)$(PREFIX)/share/man/man$$n || exit 1; \
	done
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	  $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 644 completions/zsh/_btools $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 $(PROGRAMS:%=completions/bash/%) $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 644 $(PROGRAMS:%=completions/fish/%.fish) $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	for d in prometheus nats kubernetes systemd; do \
	  install -d $(DESTDIR)$(PREFIX)/share/btools/$$d || exit 1; \
	done
	install -m 644 scripts/prometheus/alerts.yml scripts/prometheus/dashboard.json \
	  $(DESTDIR)$(PREFIX)/share/btools/prometheus
	install -m 644 scripts/nats/*.conf $(DESTDIR)$(PREFIX)/share/btools/nats
	install -m 644 scripts/kubernetes/*.yaml $(DESTDIR)$(PREFIX)/share/btools/kubernetes
	sed 's|/usr/local/bin|$(PREFIX)/bin|' scripts/systemd/host.conf >$(DESTDIR)$(PREFIX)/share/btools/systemd/host.conf
	for m in lib/systemd/system share/systemd/user; do \
	  install -d $(DESTDIR)$(PREFIX)/$$m && \
	  for u in scripts/systemd/*.socket scripts/systemd/*.service; do \
	    sed 's|/usr/local/bin|$(PREFIX)/bin|' $$u >$(DESTDIR)$(PREFIX)/$$m/$${u##*/} || exit 1; \
	  done; \
	done
	install -d $(DESTDIR)$(PREFIX)/lib/sysusers.d
	install -m 644 scripts/systemd/btools.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/btools.conf
	for d in scripts/systemd/*.d; do \
	  install -d $(DESTDIR)$(PREFIX)/lib/systemd/system/$${d##*/} && \
	  install -m 644 $$d/* $(DESTDIR)$(PREFIX)/lib/systemd/system/$${d##*/} || exit 1; \
	done

clean: ## delete what was built
	rm -rf bin dist THIRD_PARTY
