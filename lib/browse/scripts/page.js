// page is what results say of a page, whose forms may have put something before its title.
const page = () => ({
  title: Object.getOwnPropertyDescriptor(Document.prototype, 'title').get.call(document), url: location.href,
  status: performance.getEntriesByType('navigation')[0]?.responseStatus ?? 0,
})

