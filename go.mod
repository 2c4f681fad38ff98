module btools

go 1.26.0

require (
	github.com/rogpeppe/go-internal v1.16.0
	github.com/urfave/cli/v2 v2.27.7
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
)

require github.com/xrash/smetrics v0.0.0-20240521201337-686a1a2994c1 // indirect
