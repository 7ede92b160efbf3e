"""A model as one HTML file: the page of the server without a server; the model runs in the browser."""
