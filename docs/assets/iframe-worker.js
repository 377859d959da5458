/* Search when the site is read from disk. Browsers start no workers for pages of the file system, so a hidden
   frame does the worker's work. The theme's script looks for the name IFrameWorker. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      const worker = this;
      inner.postMessage = (data) => worker.dispatchEvent(new MessageEvent("message", { data }));
      inner.importScripts = (...urls) =>
        urls.reduce((loaded, each) => loaded.then(() => worker.load(each)), Promise.resolve());
      this.inner = inner;
      this.ready = this.load(url);
    }

    load(url) {
      const page = this.inner.document;
      return new Promise((resolve, reject) => {
        const script = page.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        page.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
