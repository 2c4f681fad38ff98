package find

// windowsBrowsers are the executables' places below the program directories
// of Windows, which WSL sees too.
var windowsBrowsers = []string{
	"Google/Chrome/Application/chrome.exe", "Google/Chrome Beta/Application/chrome.exe",
	"Google/Chrome Dev/Application/chrome.exe", "Google/Chrome SxS/Application/chrome.exe",
	"Microsoft/Edge/Application/msedge.exe", "Microsoft/Edge Beta/Application/msedge.exe",
	"Microsoft/Edge Dev/Application/msedge.exe",
	"Chromium/Application/chrome.exe", "BraveSoftware/Brave-Browser/Application/brave.exe",
	"BraveSoftware/Brave-Browser-Beta/Application/brave.exe",
	"BraveSoftware/Brave-Browser-Nightly/Application/brave.exe",
	"Mozilla Firefox/firefox.exe", "Firefox Developer Edition/firefox.exe", "Firefox Nightly/firefox.exe",
}
