variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Where everything runs."
  type        = string
}

variable "image" {
  description = "The image of `wakeq`, for the API and the jobs."
  type        = string
}

variable "worker_image" {
  description = "An image of your own, with handlers."
  type        = string
}

variable "kubernetes_namespace" {
  description = "GKE: the namespace of deploy/kubernetes. The API and the workers then run there, and not on Cloud Run."
  type        = string
  default     = null
}

variable "operators" {
  description = "Who looks after the queue over HTTP: `user:…` and `group:…`."
  type        = set(string)
  default     = []
}

variable "publishers" {
  description = "Addresses of further service accounts that emit with the library, by names of your choice."
  type        = map(string)
  default     = {}
}

variable "trusted_proxies" {
  description = "Ranges of the proxies before the service, whose X-Forwarded-For is believed: Cloud Run's own, and those of a load balancer if there is one."
  type        = list(string)
  default     = ["169.254.0.0/16"]
}

variable "broadcast" {
  description = "Whether every emitted event is also broadcast, for who listens."
  type        = bool
  default     = false
}
