"""One module per kind of generated page; each page is a function from nothing to Markdown, made from the code alone."""
