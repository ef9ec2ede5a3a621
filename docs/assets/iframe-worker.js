// Search in pages that are opened from a disk: a browser starts no worker there, so a hidden frame
// does the work. On a server nothing changes.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      const script = (source) => {
        const tag = inside.document.createElement("script")
        return new Promise((resolve, reject) => {
          Object.assign(tag, { src: source, onload: resolve, onerror: reject })
          inside.document.body.append(tag)
        })
      }
      inside.importScripts = (...urls) =>
        urls.reduce((before, one) => before.then(() => script(one)), Promise.resolve())
      inside.postMessage = (data) => this.tell("message", { data })
      this.ready = script(url).catch(() => this.tell("error", {}))
    }

    tell(kind, what) {
      const event = new MessageEvent(kind, what)
      this.dispatchEvent(event)
      this[`on${kind}`]?.(event)
    }

    postMessage(data) {
      const inside = this.frame.contentWindow
      this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  window.Worker = window.IFrameWorker
}
